"""Bad input: each is refused with one message that names the row and the next step."""
