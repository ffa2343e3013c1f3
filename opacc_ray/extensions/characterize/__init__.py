"""What a data set holds as a model sees it: how well its classes, their centres and their boundaries are covered."""
