"""Draw lengths, waits and arrivals, and compose sessions from them."""
