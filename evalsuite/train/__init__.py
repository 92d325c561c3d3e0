"""How the embedded checkpoints were made: data, losses, loop, export. Needs one GPU."""
