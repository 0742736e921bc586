"""SecureBoost."""
