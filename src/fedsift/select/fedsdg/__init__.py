"""FedSDG-FS and the gate baselines."""
