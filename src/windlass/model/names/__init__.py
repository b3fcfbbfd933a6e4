"""Labels, annotations, taints, resources and API versions that several rooms use, one module per owner.

Every room imports the constants themselves (`from windlass.model.names.nvidia import GPU_RESOURCE`). A name that only
one file needs is defined in that file. These modules import nothing.
"""
