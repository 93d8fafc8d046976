"""What a method's runs amount to."""
