"""Running the arms of one suite elsewhere: cut into jobs, carried out, joined again."""
