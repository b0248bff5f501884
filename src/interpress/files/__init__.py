"""Single files and folders of files: written beside their target and then moved into place."""
