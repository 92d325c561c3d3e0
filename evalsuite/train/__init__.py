"""How the embedded checkpoint was made: data, losses, loop, export. Needs one GPU."""
