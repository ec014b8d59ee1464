"""Pictures of every dashboard, of real daemons whose engines live through the incident: `make dashboards`."""
