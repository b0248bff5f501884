"""Try a surgery before it is offered: freeze the spaces that the model's code cannot shrink."""
