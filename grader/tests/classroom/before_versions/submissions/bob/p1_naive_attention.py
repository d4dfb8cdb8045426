# bob p1
