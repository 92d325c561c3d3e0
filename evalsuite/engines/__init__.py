"""Engines: what answers the questions. Each speaks the protocol of `engines.base`."""
