"""What the engines share that answer over HTTP: options, processes, sessions."""
