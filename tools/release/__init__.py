"""Makes a release: wheels, images, chart, bills of materials and an archive for clusters without the internet."""
