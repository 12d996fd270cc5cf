"""Those that Tidelog is measured against, one package each: a server, a client, its settings."""
