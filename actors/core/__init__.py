"""Sans-I/O rules: values in, values out. No thread, clock, file or process in here."""
