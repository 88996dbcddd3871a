#include "vectors.h"

int vectors_are_used = 1;
