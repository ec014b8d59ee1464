"""The probe allocations."""
