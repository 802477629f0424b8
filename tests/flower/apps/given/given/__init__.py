"""FedAvg with data and a first model that are given in a file."""
