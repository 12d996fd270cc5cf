"""The peers that Tidelog is compared with, one package each: server, client and settings."""
