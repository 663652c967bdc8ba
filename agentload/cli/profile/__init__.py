"""Look at the deployments that can be emulated, and fit one of your own."""
