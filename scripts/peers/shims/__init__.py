"""One module for each framework: our functions under its signatures."""
