"""The API over HTTPS: authentication, paths, and the encoding of responses, watches and streams."""
