"""What people look at in a browser, beside the admin: the playground and the usage pages."""
