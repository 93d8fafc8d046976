"""The operations for one client."""
