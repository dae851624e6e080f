"""The command line. What belongs here: reading arguments, showing results. Every verb it has is the library's."""
