"""What numbers are: names, functions of totals, ratios of counts, scores of the confidence."""
