"""How steps are taken: optimizer and schedule, random changes of images, differential privacy."""
