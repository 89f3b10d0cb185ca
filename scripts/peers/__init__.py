"""Published tests of other frameworks, run against our functions under the frameworks' own names and signatures."""
