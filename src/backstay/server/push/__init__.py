"""Web Push: notifications of browsers, through the push services of their makers."""
