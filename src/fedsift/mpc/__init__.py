"""Computing together: sums, products and histograms of which nobody sees the parts."""
