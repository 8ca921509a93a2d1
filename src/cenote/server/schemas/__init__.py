"""The bodies of requests and answers, one file for each dialect."""
