/** The one source file that holds the C library, where the tests go without linking it. */
#include <plimsoll_implementation.hpp>
