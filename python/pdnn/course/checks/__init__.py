"""What is checked of each sheet: a module with the sheet's name, and in it the list ``CHECKS``."""
