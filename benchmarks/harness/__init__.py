"""What every experiment uses: rows that run, what was measured, tables, figures and the report."""
