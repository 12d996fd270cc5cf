"""Parts measured alone: the machine (`physical`), and the layers of Tidelog (`layers`, `plain_grpc`)."""
