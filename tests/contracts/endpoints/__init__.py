"""What every kind that asks an endpoint promises, whatever a server or a gateway answers."""
