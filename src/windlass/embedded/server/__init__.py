"""The API over HTTPS: who may come in, what a path means, and how answers, watches and streams are written."""
