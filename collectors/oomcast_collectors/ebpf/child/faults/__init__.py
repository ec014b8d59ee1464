"""The probe major_faults."""
