"""What people see and decide: at a site (``office.py``), and where jobs are submitted from."""
