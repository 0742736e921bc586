"""Fed-IIFE."""
