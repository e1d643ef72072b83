"""Builds and tests the module for each server in versions.toml. tools/matrix is its command."""
