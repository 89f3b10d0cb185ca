"""Laws: one module each, named for the fault; the module's docstring is the law's page."""
