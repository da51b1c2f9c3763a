# Looks, and changes nothing.
look
