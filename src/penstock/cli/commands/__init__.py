"""The commands, one module each: options, help and work. The tables in `app`, `log` and `lab` name them."""
