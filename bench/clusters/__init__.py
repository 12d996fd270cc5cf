"""Failovers and many streams, measured on clusters of three servers, the same for Tidelog and its peers."""
