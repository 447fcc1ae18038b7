"""The console at `/`: its route and its static files. It knows no model: the pages ask the API as any client does."""
