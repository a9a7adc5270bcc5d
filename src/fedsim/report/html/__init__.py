"""Run folders as one page that needs no network: report.html."""
