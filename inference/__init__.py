"""The inference core: protocol, override rule, text work and engine. Knows nothing of Django, HTTP or tenants."""
