"""PSO-EVFFS."""
